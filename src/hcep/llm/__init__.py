"""Language models behind a chat endpoint: one client, its answers kept on disk, its tokens counted."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.llm.answer import Answer as Answer
    from hcep.llm.answer import LLMError as LLMError
    from hcep.llm.chat import ChatModel as ChatModel
    from hcep.llm.usage import Usage as Usage

__all__ = ["Answer", "ChatModel", "LLMError", "Usage"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Answer": "hcep.llm.answer",
        "ChatModel": "hcep.llm.chat",
        "LLMError": "hcep.llm.answer",
        "Usage": "hcep.llm.usage",
    },
)
