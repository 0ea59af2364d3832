"""The columns of the table that a hierarchy was read from, so that a table can be written with the same ones."""

from typing import Literal

from msgspec import Struct

Role = Literal["parent", "child", "name", "rank", "level", "leaf", "other"]
#: The cells of a row that are no edge or level, by the titles of their columns; empty cells are left out.
Cells = dict[str, str]


class Columns(Struct, frozen=True):
    """The columns of a table, and the cells that the hierarchy itself does not hold, such as common names.

    Attributes
    ----------
    roles : the titles of the columns in their order, each with its meaning
    rows : by concept, the cells of its rows; a concept has several rows if the table repeats it, as with two names
    """

    roles: dict[str, Role]
    rows: dict[str, list[Cells]] = {}

    def titles(self, role: Role) -> list[str]:
        return [title for title, own in self.roles.items() if own == role]
