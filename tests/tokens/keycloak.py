"""A Keycloak of one's own: unpacked from Maven's archive, with one realm, on loopback.

    mvn dependency:get -Dartifact=org.keycloak:keycloak-quarkus-dist:26.0.7:zip -Dtransitive=false

It starts within a minute; its files and its database in memory go with the folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from gateway.trial.scratch import HOST, free_ports

VERSION = "26.0.7"
ARTIFACT = f"org/keycloak/keycloak-quarkus-dist/{VERSION}/keycloak-quarkus-dist-{VERSION}.zip"
#: Java compiles it anew at its first start: a minute on a machine of its own.
READY_SECONDS = 600.0
CLIENT, AUDIENCE = "till", "sluicegate"

REALM: dict[str, Any] = {
    "realm": "shop",
    "enabled": True,
    "sslRequired": "none",
    "accessTokenLifespan": 300,
    "roles": {"realm": [{"name": "sluicegate.view"}, {"name": "other"}]},
    "users": [
        {
            "username": "ann",
            "email": "ann@shop.example",
            "firstName": "Ann",
            "lastName": "A",
            "emailVerified": True,
            "enabled": True,
            "credentials": [{"type": "password", "value": "tea", "temporary": False}],
            "realmRoles": ["sluicegate.view", "other"],
        }
    ],
    "clients": [
        {
            "clientId": CLIENT,
            "enabled": True,
            "publicClient": True,
            "directAccessGrantsEnabled": True,
            "protocolMappers": [
                {
                    "name": "for-the-gateway",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-audience-mapper",
                    "config": {
                        "included.custom.audience": AUDIENCE,
                        "access.token.claim": "true",
                    },
                }
            ],
        }
    ],
}


def archive() -> Path | None:
    """Return the archive that Maven has, None without one."""
    repository = Path(os.environ.get("MAVEN_REPOSITORY", Path.home() / ".m2" / "repository"))
    found = repository / ARTIFACT
    return found if found.is_file() else None


class Keycloak:
    """One process; `issuer` is what its tokens say of themselves."""

    def __init__(self, zipped: Path, folder: Path) -> None:
        with zipfile.ZipFile(zipped) as packed:
            packed.extractall(folder)
        self._home = folder / f"keycloak-{VERSION}"
        self._port, self._health = free_ports(2)
        self._log = folder / "keycloak.log"
        (self._home / "data" / "import").mkdir(parents=True)
        (self._home / "data" / "import" / "shop.json").write_text(json.dumps(REALM))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{HOST}:{self._port}"
        self.issuer = f"{self.url}/realms/shop"

    def start(self) -> None:
        """Start it and wait until its realm answers; raises TimeoutError with its log."""
        script = self._home / "bin" / "kc.sh"
        script.chmod(0o755)
        command = [
            str(script), "start-dev", "--db=dev-mem", f"--http-port={self._port}",
            f"--http-host={HOST}", f"--http-management-port={self._health}", "--import-realm",
            f"--hostname={self.url}",
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1"},
            )
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.issuer, timeout=5):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.5)
        self.stop()
        raise TimeoutError(self._log.read_text(errors="replace")[-4000:])

    def token(self, user: str = "ann", password: str = "tea") -> str:
        """Return an access token, as a program gets one for a user."""
        form = {
            "grant_type": "password",
            "client_id": CLIENT,
            "username": user,
            "password": password,
        }
        data = urllib.parse.urlencode(form).encode()
        where = f"{self.issuer}/protocol/openid-connect/token"
        with urllib.request.urlopen(where, data, timeout=30) as answer:
            return str(json.load(answer)["access_token"])

    def stop(self) -> None:
        """End its process, and those that its script has started."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)
