package web

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// flagz shows the flags with their values.
func flagz(current func() map[string]string) http.Handler {
	return &zpage{
		kind: "Flagz",
		text: func() string {
			flags := current()
			var text strings.Builder
			fmt.Fprintf(&text, "%s flagz, for people only\n\n", component)
			for _, name := range slices.Sorted(maps.Keys(flags)) {
				fmt.Fprintf(&text, "%s=%s\n", name, flags[name])
			}
			return text.String()
		},
		fields: func() map[string]any { return map[string]any{"flags": current()} },
	}
}
