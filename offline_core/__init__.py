"""Turn experience into policies: `import offline_core as offline`.

All that users need is here, and all that is not here may change. Names are imported when they are first used, so that this
import takes no time: `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
