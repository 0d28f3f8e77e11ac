#!/bin/sh
# Builds the modules beside their sources, with the manifest that stands in the
# lines of the source that begin with ";;| ". It needs wat2wasm, of Debian's package
# wabt. glovebox hand embed would refuse most of these manifests.
set -eu
cd "$(dirname "$0")"

# byte N writes one byte.
byte() {
	# shellcheck disable=SC2059
	printf "\\$(printf %o "$1")"
}

for source in *.wat; do
	module=${source%.wat}.wasm
	wat2wasm "$source" -o "$module"
	document=$(sed -n 's/^;;| \{0,1\}//p' "$source")
	[ -n "$document" ] || continue
	# A custom section: id 0, the size in two bytes of LEB128, the name, the text.
	size=$(($(printf '%s\n' "$document" | wc -c) + 18))
	{
		byte 0
		byte $((size % 128 + 128))
		byte $((size / 128))
		byte 17
		printf 'glovebox.manifest%s\n' "$document"
	} >>"$module"
done
