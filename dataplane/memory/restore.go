package memory

import (
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// Restore implements [iptables.Tool]: it interprets input as "iptables-restore
// --noflush" does. Tables land one by one, each whole or not at all; at the
// first refusal the rest of the input is not read.
func (k *Kernel) Restore(ctx context.Context, input []byte) error {
	fault, err := k.begin(ctx, Call{Command: k.program("-restore"), Input: input})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counters.Restores++
	k.counters.Bytes += len(input)
	r := restore{kernel: k, fault: fault}
	return r.run(input)
}

// restore is one reading of an input.
type restore struct {
	kernel *Kernel
	fault  Fault
	// line is the number of the line at hand, from 1.
	line int
	// stage holds the changes since "*TABLE", nil between tables.
	stage *stage
	// culprit is the first line since "*TABLE" that the fault refuses, or 0.
	culprit int
	// struck is set once that has led to a refusal.
	struck bool
	// landed counts the tables that have been committed.
	landed int
}

func (r *restore) run(input []byte) error {
	command := r.kernel.program("-restore")
	for line := range bytes.Lines(input) {
		r.line++
		if r.stops() {
			return r.kernel.inject(r.fault, command)
		}
		text := strings.TrimRight(string(line), "\n")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		r.kernel.counters.Lines++
		if r.fault.Refuse != "" && r.culprit == 0 && strings.Contains(text, r.fault.Refuse) {
			r.culprit = r.line
		}
		if err := r.read(text); err != nil {
			return r.refuse(err)
		}
	}
	if r.stage != nil {
		r.line++
		return r.kernel.refuse(command, r.line, refusal("COMMIT expected"))
	}
	return r.kernel.inject(r.fault, command)
}

// stops tells whether the fault ends the reading here.
func (r *restore) stops() bool {
	return r.fault.Outcome != dataplane.Landed && r.stage == nil && r.landed >= r.fault.Tables
}

// refuse makes the error of the line at hand. The line that the tool names may
// be another one when a fault says so.
func (r *restore) refuse(reason error) error {
	line := r.line
	if r.struck {
		switch r.fault.Blame {
		case BlameLine:
			line = r.culprit
		case BlameNobody:
			line = 0
		}
	}
	return r.kernel.refuse(r.kernel.program("-restore"), line, reason)
}

// read interprets one line.
func (r *restore) read(text string) error {
	name, opens := strings.CutPrefix(text, "*")
	switch {
	case opens && r.stage == nil:
		t := r.kernel.tables[iptables.Table(name)]
		if t == nil {
			return noTable(iptables.Table(name))
		}
		r.stage = newStage(r.kernel, t)
		return nil
	case r.stage == nil || opens:
		return refusef("Bad argument `%s'", text)
	case text == "COMMIT":
		return r.commit()
	case strings.HasPrefix(text, ":"):
		return r.declare(text[1:])
	default:
		return r.command(text)
	}
}

func (r *restore) commit() error {
	if r.culprit > 0 {
		r.struck = true
		return errInvalid
	}
	if err := r.stage.commit(); err != nil {
		return err
	}
	r.stage = nil
	r.landed++
	return nil
}

// declare reads ":CHAIN POLICY [PACKETS:BYTES]"; the counters are not kept.
func (r *restore) declare(text string) error {
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 3 {
		return refusef("Bad argument `%s'", text)
	}
	return r.stage.declare(words[0], words[1])
}

// command reads a line that begins with the command of the iptables program.
func (r *restore) command(text string) error {
	words, err := split(text)
	if err != nil {
		return err
	}
	if len(words) > 0 && strings.HasPrefix(words[0], "[") { // counters, which are not kept
		words = words[1:]
	}
	if len(words) < 2 {
		return refusef("Bad argument `%s'", text)
	}
	chain, rest := words[1], words[2:]
	switch words[0] {
	case "-A", "--append":
		return r.add(chain, -1, rest)
	case "-I", "--insert":
		return r.insert(chain, rest)
	case "-D", "--delete":
		return r.delete(chain, rest)
	case "-F", "--flush":
		return alone(rest, func() error { return r.stage.flush(chain) })
	case "-X", "--delete-chain":
		return alone(rest, func() error { return r.stage.remove(chain) })
	default:
		return refusef("unknown option %q", words[0])
	}
}

// alone does what a command asks for unless more words follow it.
func alone(rest []string, do func() error) error {
	if len(rest) > 0 {
		return refusef("Bad argument `%s'", rest[0])
	}
	return do()
}

func (r *restore) add(chain string, at int, words []string) error {
	parsed, err := parseRule(r.stage.dialect, words)
	if err != nil {
		return err
	}
	return r.stage.insert(chain, at, parsed)
}

// insert reads "-I CHAIN [POSITION] RULE"; positions count from 1.
func (r *restore) insert(chain string, words []string) error {
	if position, ok := leadingNumber(words); ok {
		if position < 1 {
			return refusal("Invalid rule number `0'")
		}
		return r.add(chain, position-1, words[1:])
	}
	return r.add(chain, 0, words)
}

// delete reads "-D CHAIN POSITION" or "-D CHAIN RULE".
func (r *restore) delete(chain string, words []string) error {
	if position, ok := leadingNumber(words); ok {
		return alone(words[1:], func() error { return r.stage.deleteAt(chain, position-1) })
	}
	parsed, err := parseRule(r.stage.dialect, words)
	if err != nil {
		return err
	}
	return r.stage.delete(chain, parsed)
}

func leadingNumber(words []string) (int, bool) {
	if len(words) == 0 {
		return 0, false
	}
	n, err := strconv.Atoi(words[0])
	return n, err == nil && n >= 0
}
