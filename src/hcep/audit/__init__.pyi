from .checks import Check as Check
from .report import Audit as Audit, audit as audit
