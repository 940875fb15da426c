"""Types of numpy's arrays; apart from gather.py, so that who names one does not import what computes."""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
