"""URLs taken apart; keys that no message and no URL carries."""

from __future__ import annotations

import pytest

from optimize.load.target import AddressError, check_key, parse_url

URLS = {
    "http://h:8000": ("http://h:8000/v1", "", "h:8000"),
    "http://h:8000/": ("http://h:8000/v1", "", "h:8000"),
    "https://h": ("https://h/v1", "", "h"),
    "https://h:443/v1/": ("https://h/v1", "", "h"),
    "http://h/v1/chat/completions": ("http://h/v1", "chat", "h"),
    "http://h/v1/completions": ("http://h/v1", "completions", "h"),
    "http://h/x/v1/embeddings": ("http://h/x/v1", "embeddings", "h"),
    "http://[::1]:8000/v1": ("http://[::1]:8000/v1", "", "[::1]:8000"),
    "unix:///run/x.sock": ("unix:///run/x.sock", "", "localhost"),
    "unix:/run/x.sock": ("unix:///run/x.sock", "", "localhost"),
}


@pytest.mark.parametrize("text", URLS)
def test_a_url(text: str) -> None:
    address = parse_url(text)
    assert (address.url, address.endpoint, address.authority) == URLS[text]


BAD = {
    "h:8000": "http://h:8000",
    "ftp://h": "",
    "http://": "",
    "http://user:planted-password@h": "--api-key-env",
    "http://h/v1?key=planted-password": "",
    "http://h:99999": "",
    "http://h\r\nX: y/": "",
    "http://h/ü": "",
    "unix:relative": "unix:///",
    "": "",
}


@pytest.mark.parametrize("text", BAD)
def test_a_url_that_cannot_be(text: str) -> None:
    with pytest.raises(AddressError) as error:
        parse_url(text)
    assert BAD[text] in error.value.hint
    assert "planted-password" not in str(error.value) + error.value.hint


def test_where_metrics_are() -> None:
    assert parse_url("http://h/x/v1").root == "/x"
    assert parse_url("http://h").root == ""


def test_a_key_is_one_printable_word() -> None:
    assert check_key(" sk-abc\n") == "sk-abc"
    for text in ("sk-planted\r\nX: y", "sk planted", "sk-plantéd", "s" * 9000):
        with pytest.raises(AddressError) as error:
            check_key(text)
        assert text not in str(error.value)
