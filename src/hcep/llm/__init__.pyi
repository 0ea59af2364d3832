from .answer import Answer as Answer, LLMError as LLMError
from .chat import ChatModel as ChatModel
from .usage import Usage as Usage
