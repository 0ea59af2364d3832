from .chat import ChatModel as ChatModel, RejectedError as RejectedError, ask_until_accepted as ask_until_accepted
from .endpoint import LLMError as LLMError, Usage as Usage
