from __future__ import annotations

import pytest

from greenscope.model import CodeOrigin
from greenscope.rebuild.origin import code_origin

APPLICATION, LIBRARY, STDLIB = CodeOrigin.APPLICATION, CodeOrigin.LIBRARY, CodeOrigin.STDLIB


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("/srv/app/views.py", APPLICATION),
        ("views.py", APPLICATION),
        ("", APPLICATION),
        ("<string>", APPLICATION),
        ("<stdin>", APPLICATION),
        ("/srv/lib/python/app.py", APPLICATION),
        ("/srv/python3.11/app.py", APPLICATION),
        ("/srv/site-packages.py", APPLICATION),
        ("/srv/venv/lib/python3.11/site-packages/gevent/hub.py", LIBRARY),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", LIBRARY),
        ("/usr/lib64/python3.9/site-packages/x.py", LIBRARY),
        ("C:/site-packages/x.py", LIBRARY),
        ("/usr/lib/python3.11/json/decoder.py", STDLIB),
        ("/usr/local/lib/python3.9/threading.py", STDLIB),
        ("/usr/lib64/python3.13/queue.py", STDLIB),
        ("/opt/app/python311.zip/json/decoder.py", STDLIB),
        ("<frozen importlib._bootstrap>", STDLIB),
        ("<frozen runpy>", STDLIB),
    ],
)
def test_origin_of_a_file(file: str, origin: CodeOrigin) -> None:
    assert code_origin(file) is origin
