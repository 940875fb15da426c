"""Types of numpy's arrays; apart from gather.py: modules that only name a type import no numpy code."""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
