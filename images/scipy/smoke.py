"""Runs inside the container: the usual libraries compute."""

import numpy as np
import pandas as pd
import scipy.linalg
import sklearn.linear_model
import statsmodels.api as sm

left = np.array([[2.0, 0.0], [0.0, 4.0]])
if scipy.linalg.solve(left, [2.0, 8.0]).tolist() != [1.0, 2.0]:
    raise SystemExit("scipy solves something else")
frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [1.0, 3.0, 5.0]})
line = sklearn.linear_model.LinearRegression().fit(frame[["x"]], frame["y"])
fit = sm.OLS(frame["y"], sm.add_constant(frame["x"])).fit()
if not (abs(line.coef_[0] - 2) < 1e-9 and abs(fit.params["x"] - 2) < 1e-9):
    raise SystemExit("two ways to fit a line disagree")
print("numpy", np.__version__, "pandas", pd.__version__, "scipy", scipy.__version__)
