"""Classes that generators made from an OpenAPI document, read back as JSON schemas. Their modules are parsed, not run.

Two forms: fields with annotations (pydantic), and tables `openapi_types` and `attribute_map` (OpenAPI Generator's elder
one). What stands for a type of Kubernetes itself is a reference to Kubernetes' own schema.
"""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Schema = dict[str, Any]
PLAIN: Mapping[str, Schema] = {
    "str": {"type": "string"}, "StrictStr": {"type": "string"}, "StrictBytes": {"type": "string"},
    "datetime": {"type": "string"},
    "int": {"type": "integer"}, "StrictInt": {"type": "integer"},
    "bool": {"type": "boolean"}, "StrictBool": {"type": "boolean"},
    "float": {"type": "number"}, "StrictFloat": {"type": "number"},
    "Any": {}, "object": {}, "None": {"type": "null"},
}  # fmt: skip
_CLASS = re.compile(r"^class (\w+)\(.*\n(?:(?:[ \t].*)?\n|[ \t].*\Z)*", re.MULTILINE)
Known = Callable[[str], Schema | None]  # the schema of a type that is defined elsewhere


def read(sources: Iterable[str], elsewhere: Known, top: str) -> dict[str, Schema]:
    """By name of the class: `top`, and what it is made of. Fields that a class does not have are refused.

    Only these classes are parsed: a module may have fifty thousand lines.
    """
    texts = {found[1]: found[0] for text in sources for found in _CLASS.finditer(text)}
    made: dict[str, Schema] = {}
    todo = [top]

    def named(name: str) -> Schema:
        if name in PLAIN:
            return PLAIN[name]
        if found := elsewhere(name):
            return found
        if name not in texts:
            raise KeyError(f"a type that nobody defines: {name}")
        todo.append(name)
        return {"$ref": f"#/$defs/{name}"}

    while todo:
        name = todo.pop()
        if name not in made:
            [node] = ast.parse(texts[name]).body
            assert isinstance(node, ast.ClassDef)
            made[name] = _class(node, named)
    return made


def _class(node: ast.ClassDef, named: Callable[[str], Schema]) -> Schema:
    tables = {
        name: ast.literal_eval(value) for name, value in _assigned(node) if name in ("openapi_types", "attribute_map")
    }
    if tables:
        types, names = tables["openapi_types"], tables["attribute_map"]
        shapes = {names[field]: _type(_parsed(text), named) for field, text in types.items()}
        return _closed(shapes, [names[field] for field in types if _never_none(node, field)])
    for base in node.bases:  # a model of one value
        if isinstance(base, ast.Subscript) and _name(base.value) == "RootModel":
            return _type(base.slice, named)
    shapes, required = {}, []
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and not line.target.id.startswith("_"):
            name = _alias(line) or line.target.id
            shapes[name] = _type(line.annotation, named)
            required += [] if _has_default(line) else [name]
    return _closed(shapes, required)


def _closed(properties: Mapping[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _assigned(node: ast.ClassDef) -> Iterable[tuple[str, ast.expr]]:
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            yield line.targets[0].id, line.value


def _never_none(node: ast.ClassDef, field: str) -> bool:
    """The elder form says what is required only by what its setter refuses."""
    for line in node.body:
        if isinstance(line, ast.FunctionDef) and line.name == field and "setter" in ast.dump(line.decorator_list[0]):
            return "must not be `None`" in ast.unparse(line)
    return False


def _parsed(text: str) -> ast.expr:
    """`dict(str, X)` and `list[X]` as annotations."""
    made = ast.parse(text.replace("dict(", "Dict[").replace(")", "]").replace("list[", "List["), mode="eval")
    return made.body


def _fields(line: ast.AnnAssign) -> Iterable[ast.Call]:
    inside = [line.value] if line.value else []
    if isinstance(line.annotation, ast.Subscript) and _name(line.annotation.value) == "Annotated":
        assert isinstance(line.annotation.slice, ast.Tuple)
        inside += line.annotation.slice.elts[1:]
    return [one for one in inside if isinstance(one, ast.Call) and _name(one.func) == "Field"]


def _alias(line: ast.AnnAssign) -> str:
    said = [word.value for call in _fields(line) for word in call.keywords if word.arg == "alias"]
    return str(ast.literal_eval(said[0])) if said else ""


def _has_default(line: ast.AnnAssign) -> bool:
    if line.value is None:
        return False
    if isinstance(line.value, ast.Call) and _name(line.value.func) == "Field":
        return any(word.arg == "default" for word in line.value.keywords)
    return True


def _type(node: ast.expr, named: Callable[[str], Schema]) -> Schema:
    if isinstance(node, ast.Constant):
        return named(str(node.value)) if node.value is None else _type(_parsed(str(node.value)), named)
    if isinstance(node, ast.BinOp):
        return {"anyOf": [_type(node.left, named), _type(node.right, named)]}
    if not isinstance(node, ast.Subscript):
        return named(_name(node))
    outer, inner = _name(node.value), node.slice
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match outer:
        case "Optional" | "Annotated":
            return _type(parts[0], named)
        case "List" | "list":
            return {"type": "array", "items": _type(parts[0], named)}
        case "Dict" | "dict":
            return {"type": "object", "additionalProperties": _type(parts[1], named)}
        case "Union":
            return {"anyOf": [_type(one, named) for one in parts]}
        case "Literal":
            return {"enum": [ast.literal_eval(one) for one in parts]}
    raise KeyError(f"a form of types that is not read: {outer}")


def _name(node: ast.expr) -> str:
    return (
        node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ast.unparse(node)
    )
