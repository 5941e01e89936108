// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/observe"
)

// logFiles are the two streams of a test.
type logFiles struct {
	t *testing.T
	streams
}

func newLogFiles(t *testing.T) logFiles {
	f := logFiles{t: t}
	for name, to := range map[string]**stream{"standard": &f.standard, "errors": &f.errors} {
		file, err := os.Create(filepath.Join(t.TempDir(), name))
		check(t, err)
		t.Cleanup(func() { check(t, file.Close()) })
		*to = &stream{file: file}
	}
	return f
}

func (f logFiles) open(l config.Log) *output {
	o, err := newOutput(l, f.streams)
	check(f.t, err)
	return o
}

// lines returns what a stream has got.
func (f logFiles) lines(of *stream) []string {
	check(f.t, of.Sync())
	text, err := os.ReadFile(of.file.Name())
	check(f.t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got) || i >= len(want):
			t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		case !regexp.MustCompile(want[i]).MatchString(got[i]):
			t.Errorf("line %d is %q, which does not match %q", i, got[i], want[i])
		}
	}
}

// TestLogger_FormatChange: a change of the format applies to existing loggers, and the fields of a derived logger
// appear in every format.
func TestLogger_FormatChange(t *testing.T) {
	files, out := newLogFiles(t), &switchable{}
	out.set(files.open(config.Log{Level: "info", Format: "json"}))
	log := zap.New(&logCore{out: out}, zap.AddCaller()).Named("part").With(zap.Int("a", 1))
	log.Info("first", zap.Int("b", 2))
	log.Debug("not told")
	out.set(files.open(config.Log{Level: "info", Format: "console", OwnVerbosity: 4}))
	log.With(zap.Int("c", 3)).Debug("second")
	out.set(files.open(config.Log{Level: "warn", Format: "text", OwnVerbosity: 4}))
	log.Debug("not told")
	log.Info("not told")
	log.Warn("third", zap.Duration("took", time.Second), zap.Strings("of", []string{`"x"`, "y"}), zap.Error(errors.New("no way")),
		zap.ByteString("stack", []byte("one\ntwo\n")))
	wantLines(t, files.lines(files.errors),
		`^{"level":"info","ts":\d{13}(\.\d+)?,"logger":"part","caller":"logging/logging_test.go:\d+","msg":"first","a":1,"b":2,"v":0}$`,
		`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\tDEBUG\tpart\tsecond\t{"a": 1, "c": 3}$`,
		`^W\d{4} \d\d:\d\d:\d\d\.\d{6} {1,7}\d+ logging_test.go:\d+\] "third" logger="part" a=1 took="1s" of=\["\\"x\\"","y"\] err="no way" stack=<$`,
		`^\tone$`, `^\ttwo$`, `^ >$`)
	check(t, log.Sync())
}

// TestLogger_JSONMatchesKubernetes: programs that parse the JSON logs of kube-proxy find the same fields.
func TestLogger_JSONMatchesKubernetes(t *testing.T) {
	files, out := newLogFiles(t), &switchable{}
	out.set(files.open(config.Log{Level: "info", Format: "json", OwnVerbosity: 2}))
	log := zap.New(&logCore{out: out}, zap.AddCaller())
	log.Log(observe.ChangeLevel, "a change", zap.Duration("took", 1500*time.Millisecond))
	log.Debug("not told")
	log.Error("a failure", zap.Error(errors.New("no way")))
	lines := files.lines(files.errors)
	wantLines(t, lines, `"took":"1.5s","v":2}$`, `"msg":"a failure","err":"no way"}$`)
	for _, line := range lines {
		var parsed struct {
			TS     float64
			Caller string
			Msg    string
		}
		check(t, json.Unmarshal([]byte(line), &parsed))
		if age := time.Since(time.UnixMicro(int64(parsed.TS * 1000))); age < 0 || age > time.Hour {
			t.Errorf("%s is %v old", line, age)
		}
	}
}

// TestLogger_SplitStream: with SplitStream, only errors go to standard error.
func TestLogger_SplitStream(t *testing.T) {
	for _, format := range []string{"json", "text", "console"} {
		files, out := newLogFiles(t), &switchable{}
		out.set(files.open(config.Log{Level: "info", Format: format, SplitStream: true}))
		log := zap.New(&logCore{out: out})
		log.Info("one")
		log.Warn("two")
		log.Error("three")
		wantLines(t, files.lines(files.standard), "one", "two")
		wantLines(t, files.lines(files.errors), "three")
	}
}

// TestLogger_Verbosity: -v, log.level and --vmodule enable the right levels, for Sluice's own lines and for those of
// libraries.
func TestLogger_Verbosity(t *testing.T) {
	for name, c := range map[string]struct {
		log            config.Log
		own, libraries string
	}{
		"default":        {config.Log{Level: "info"}, "info", "info"},
		"-v=1":           {config.Log{Level: "info", Verbosity: 1, OwnVerbosity: 1}, "info", "info 1"},
		"-v=2":           {config.Log{Level: "info", Verbosity: 2, OwnVerbosity: 2}, "info change", "info 1 2"},
		"-v=4":           {config.Log{Level: "info", Verbosity: 4, OwnVerbosity: 4}, "info change debug", "info 1 2"},
		"debug":          {config.Log{Level: "debug", OwnVerbosity: 4}, "info change debug", "info"},
		"warn, -v=4":     {config.Log{Level: "warn", Verbosity: 4}, "", ""},
		"by file":        {config.Log{Level: "info", VModule: logsapi.VModuleConfiguration{{FilePattern: "logging_*", Verbosity: 2}}}, "info change", "info 1 2"},
		"by other files": {config.Log{Level: "info", VModule: logsapi.VModuleConfiguration{{FilePattern: "elsewhere", Verbosity: 2}}}, "info", "info"},
	} {
		files, out := newLogFiles(t), &switchable{}
		c.log.Format = "text"
		out.set(files.open(c.log))
		own := zap.New(&logCore{out: out}, zap.AddCaller())
		own.Info("info")
		own.Log(observe.ChangeLevel, "change")
		own.Debug("debug")
		said := regexp.MustCompile(`"(\w+)"`)
		told := func() (words []string) {
			for _, match := range said.FindAllStringSubmatch(strings.Join(files.lines(files.errors), "\n"), -1) {
				words = append(words, match[1])
			}
			return words
		}
		if got := strings.Join(told(), " "); got != c.own {
			t.Errorf("%s: own lines %q, want %q", name, got, c.own)
		}
		check(t, files.errors.file.Truncate(0))
		libraries := zapr.NewLogger(zap.New(&logCore{out: out, numbered: true}, zap.AddCaller()))
		libraries.Info("info")
		libraries.V(1).Info("1")
		libraries.V(2).Info("2")
		if got := strings.Trim(strings.Join(told(), " "), "\x00"); got != c.libraries {
			t.Errorf("%s: lines of libraries %q, want %q", name, got, c.libraries)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogger_WarningsHaveIDs: lines at WARN and ERROR begin with the ID of their message; lines of libraries and at
// other levels do not.
func TestLogger_WarningsHaveIDs(t *testing.T) {
	entry := zapcore.Entry{Level: zapcore.WarnLevel, Message: "batch write failed; retrying"}
	if got := identify(entry); len(got) != 1 || got[0].Key != "id" || got[0].String != "write-failed" {
		t.Errorf("%+v", got)
	}
	for name, other := range map[string]zapcore.Entry{
		"below WARN": {Level: zapcore.DebugLevel, Message: entry.Message}, "unknown": {Level: zapcore.WarnLevel, Message: "x"},
	} {
		if got := identify(other); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if id := ID("http: TLS handshake error"); id != "http" {
		t.Errorf("the HTTP server has the ID %q", id)
	}
	seen := make(map[string]string, len(ids))
	page, err := os.ReadFile("../../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	for message, id := range ids {
		if !strings.Contains(string(page), " `"+id+"`") {
			t.Errorf("docs/logs.md does not describe %s", id)
		}
		if other := seen[id]; other != "" {
			t.Errorf("%s identifies %q and %q", id, message, other)
		}
		seen[id] = message
	}
}
