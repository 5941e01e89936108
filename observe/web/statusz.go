package web

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// statusz shows what runs here, and since when.
func statusz(p Program, paths []string) http.Handler {
	return &zpage{
		kind: "Statusz",
		text: func() string {
			return fmt.Sprintf("%s statusz, for people only\n\nStarted: %s\nUp: %v\nGo version: %s\nBinary version: %s\nPaths: %s\n",
				component, p.Started.Format(time.UnixDate), p.up(), runtime.Version(), p.Version, strings.Join(paths, " "))
		},
		fields: func() map[string]any {
			return map[string]any{
				"startTime":     p.Started.UTC().Format(time.RFC3339),
				"uptimeSeconds": int64(p.up().Seconds()),
				"goVersion":     runtime.Version(),
				"binaryVersion": p.Version,
				"paths":         paths,
			}
		},
	}
}

func (p *Program) up() time.Duration { return max(0, time.Since(p.Started)).Truncate(time.Second) }
