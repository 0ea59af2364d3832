from .chat import ChatModel as ChatModel
