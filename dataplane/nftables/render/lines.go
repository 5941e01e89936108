// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"unicode"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Lines returns a readable text of an object in nft's syntax: where it is, such as "frontends" or
// "chain services", and its lines. For an object of another program or release, the number of bytes
// stands for parts that this package cannot decode.
func Lines(family service.Family, o *dataplane.Object) (where string, lines []string) {
	d := dialects[family]
	where = o.ID.Container + " " + o.ID.Name
	if name, ok := SetOf(o.ID.Container); ok {
		text, _ := elementText(d, name, o)
		where, lines = name, []string{text}
	} else if o.ID.Container == ContainerTable {
		where = "table " + d.Name + " " + TableName
	} else {
		_, lines, _ = definitionText(d, o)
	}
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return printable(where), lines
}

// printable replaces characters that could control a terminal, because the kernel accepts any bytes in a name.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
