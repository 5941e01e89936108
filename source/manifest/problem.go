package manifest

import (
	"fmt"
	"strings"
)

// Problem says why a file, or the directory, is refused.
type Problem struct {
	// File is the path of the file or of the directory.
	File string
	// Line is where in the file, counted from 1; 0 when that is not known.
	Line int
	// Object is kind and name, for example "Service default/web"; empty when
	// the file could not be read that far.
	Object string
	// Field is the path of the field, for example "spec.ports[0].port"; empty
	// when no field is to blame.
	Field string
	// Message says what is wrong and, where possible, what to write instead.
	Message string
	// More is the number of further problems in the same file.
	More int
}

// String gives one line: "web.yaml:12: Service default/web: spec.ports[0].port:
// must be between 1 and 65535, is 0 (and 2 more problems)".
func (p Problem) String() string {
	var line strings.Builder
	line.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&line, ":%d", p.Line)
	}
	for _, part := range []string{p.Object, p.Field, p.Message} {
		if part != "" {
			line.WriteString(": " + part)
		}
	}
	switch {
	case p.More == 1:
		line.WriteString(" (and 1 more problem)")
	case p.More > 1:
		fmt.Fprintf(&line, " (and %d more problems)", p.More)
	}
	return line.String()
}

// finding is a problem inside one object, before it is known where that is.
type finding struct {
	field   string
	message string
}

// findings collects what is wrong with one object.
type findings []finding

func (f *findings) add(field, format string, arguments ...any) {
	*f = append(*f, finding{field, fmt.Sprintf(format, arguments...)})
}
