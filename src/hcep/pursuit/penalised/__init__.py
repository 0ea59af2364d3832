"""Codes by a penalty on coefficients: the lasso, and the lasso of a tree."""

from hcep.pursuit.penalised.coding import NotConvergedWarning
from hcep.pursuit.penalised.lasso import lasso, lasso_alpha, tree_lasso, tree_lasso_alpha

__all__ = ["NotConvergedWarning", "lasso", "lasso_alpha", "tree_lasso", "tree_lasso_alpha"]
