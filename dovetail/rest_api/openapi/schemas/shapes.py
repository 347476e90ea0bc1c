"""Functions that build schemas (JSON Schema 2020-12)."""

from dovetail.rest_api.answers.pieces import Json


def ref(name: str) -> Json:
    """A reference to one of ``SCHEMAS``."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(members: Json, *optional: str, **more: object) -> Json:
    """An object with exactly these members; the ``optional`` ones may be absent."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False, **more}


def array(of: str) -> Json:
    """An array of one of ``SCHEMAS``."""
    return {"type": "array", "items": ref(of)}


def text(description: str = "", **more: object) -> Json:
    """A string; ``more``: further keywords of JSON Schema."""
    return {"type": "string", **({"description": description} if description else {}), **more}


def texts(description: str) -> Json:
    return {"type": "array", "items": text(), "description": description}


def count(description: str = "") -> Json:
    """An integer from 0."""
    return {"type": "integer", "minimum": 0, **({"description": description} if description else {})}


def single(data: Json) -> Json:
    """An answer about the node."""
    return record({"data": data, "link": ref("Link")})


def read(data: Json) -> Json:
    """An answer with a head."""
    return record({"data": data, "head": ref("Id"), "link": ref("Link")})


def listed(of: str) -> Json:
    """An answer with a page of a list."""
    return record({"data": array(of), "head": ref("Id"), "link": ref("Link"), "paging": ref("Paging")})


def counts(*names: str) -> Json:
    """An object of integers from 0, by name."""
    return record({name: count() for name in names})
