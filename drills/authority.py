"""A small certificate authority, for drills and tests: keys in plain files, certificates of a day."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Issues certificates into `folder`; `ca_file` is what trusts them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"{name} CA")
        builder = _builder(subject, subject, self._key.public_key(), ends_in=10 * _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.ca_file = str(folder / f"{name}-ca.pem")
        Path(self.ca_file).write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, ip: str = "127.0.0.1", dns: str = "localhost", expired: bool = False, cn: str = ""
    ) -> tuple[str, str]:
        """Paths of a certificate and its key, good for a server and a client. `cn`: its common name, "": `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        ends_in = -_DAY if expired else _DAY
        builder = _builder(_subject(cn or name), self._certificate.subject, key.public_key(), ends_in=ends_in)
        names = [x509.DNSName(dns), x509.IPAddress(ipaddress.ip_address(ip))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        cert_file, key_file = self._folder / f"{self._name}-{name}.pem", self._folder / f"{self._name}-{name}.key"
        certificate = builder.sign(self._key, hashes.SHA256())
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(cert_file), str(key_file)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, ends_in: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 5 * _DAY)
        .not_valid_after(now + ends_in)
    )
