#!/bin/sh
# Makes the root file system of the image: Debian's Python, the locked dependencies, the wheel, and nothing else; no
# shell of its own choosing, no package manager, no pip. The Containerfile runs it in its first stage, and `make
# image-check` on a machine that can pull no image. Needs root, mmdebstrap, strip and a Python of the suite's version with venv.
#
#     image/rootfs.sh TARGET WHEEL SUITE SBOM
set -eu
target=$1 wheel=$2 suite=$3 sbom=$4
here=$(cd "$(dirname "$0")" && pwd)
app=$target/opt/gpu-extender

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files"
export FILES="$work/files"

# Unpacked, never configured: nothing runs as root in it, and there is no dpkg database to update. What each package
# brought is written down for the SBOM.
mmdebstrap --quiet --mode=root --variant=extract --include=python3-minimal,libpython3-stdlib,libstdc++6,ca-certificates \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --extract-hook='for each in "$1"/var/cache/apt/archives/*.deb; do
        name=$(dpkg-deb --show --showformat="\${Package}_\${Version}_\${Architecture}" "$each")
        dpkg-deb --fsys-tarfile "$each" | tar -t > "$FILES/$name"; done' \
    "$suite" "$target"
python=$(cd "$target/usr/bin" && echo python3.[0-9]*)
version=${python#python}
case $version in *[!0-9.]*) version=$(cd "$target/usr/lib" && ls -d python3.[0-9]* | head -n 1 | sed 's/python//') ;; esac

# Debian's own CA list is a package's script; the certificates themselves are files.
mkdir -p "$target/etc/ssl/certs" "$app"
cat "$target"/usr/share/ca-certificates/mozilla/*.crt > "$target/etc/ssl/certs/ca-certificates.crt"
echo ./etc/ssl/certs/ca-certificates.crt | tee -a "$FILES"/ca-certificates_* > /dev/null
printf 'root:x:0:0:root:/root:/sbin/nologin\ngpu-extender:x:65532:65532::/nonexistent:/sbin/nologin\n' > "$target/etc/passwd"
printf 'root:x:0:\ngpu-extender:x:65532:\n' > "$target/etc/group"

# The lock names every file by its hash, for all of Python 3.11 to 3.14; only wheels, so that nothing is built.
pip=$work/pip
python3 -m venv "$pip"
install="$pip/bin/python -m pip --quiet --disable-pip-version-check install --root-user-action=ignore --no-compile
    --no-deps --target $app --python-version $version --implementation cp --platform manylinux_2_28_x86_64
    --platform manylinux2014_x86_64 --platform any"
[ "$(uname -m)" = x86_64 ] || install=$(echo "$install" | sed "s/x86_64/$(uname -m)/g")
$install --only-binary :all: --require-hashes -r "$here/requirements.lock"
$install --no-index "$wheel"

# Tests and stubs of dependencies, headers, and what only installing needs.
find "$app" -depth \( -name tests -o -name _tests -o -name test -o -name include \) -type d -exec rm -rf {} +
find "$app" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.c' -o -name '*.a' -o -name '*.hash' \) -type f -delete
# Packages that only installing a package needs, and what the C library reads for old character sets.
(cd "$target" && rm -rf usr/bin/c_rehash usr/bin/deb* usr/bin/dpkg* usr/bin/openssl usr/bin/py3* usr/bin/tar usr/bin/update-* \
    usr/sbin usr/share/perl5 usr/share/debconf usr/share/dpkg usr/share/python3 usr/lib/*/gconv usr/lib/*/libdb-5.3.so \
    usr/lib/*/perl* usr/share/pixmaps usr/share/polkit-1 usr/lib/python3/dist-packages usr/lib/python3.*/pydoc_data \
    usr/lib/python3.*/test etc/alternatives etc/cron.daily etc/debconf.conf etc/dpkg etc/logrotate.d etc/rmt usr/lib/mime \
    usr/lib/systemd usr/libexec/dpkg usr/share/bash-completion usr/share/bug usr/share/lintian opt/gpu-extender/numpy/distutils opt/gpu-extender/numpy/f2py)
# Symbols that only a debugger reads. numpy's libraries come without.
find "$app" -name '*.so*' -not -path '*/numpy*' -exec strip --strip-unneeded {} +
rm -rf "$app/bin" "$target/var/cache" "$target/var/lib/apt" "$target/var/lib/dpkg" "$target/usr/share/ca-certificates" \
    "$target/usr/lib/apt" "$target/etc/apt" "$target/dev" "$target/tmp" "$target/var/log"
mkdir -p "$target/dev" "$target/proc" "$target/sys" "$target/tmp" "$target/var/run" "$target/usr/local/bin"
cat > "$target/usr/local/bin/gpu-extender" <<'END'
#!/usr/bin/python3 -sS
import sys

sys.path.insert(0, "/opt/gpu-extender")
from extender.entry import main

sys.exit(main())
END
chmod 755 "$target/usr/local/bin/gpu-extender"
# Bytecode cannot be written later: the root is read-only. Of dependencies it is all that is kept.
if "$pip/bin/python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$version"; then
    "$pip/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$app/accounting" "$app/extender"
    "$pip/bin/python" -m compileall -q -b -x "^$app/(accounting|extender)/" --invalidation-mode unchecked-hash "$app"
    find "$app" -name '*.py' -not -path "$app/accounting/*" -not -path "$app/extender/*" -delete
else
    echo "image/rootfs.sh: no bytecode: this is no Python $version" >&2
fi
python3 "$here/sbom.py" "$target" "$FILES" "$sbom"
