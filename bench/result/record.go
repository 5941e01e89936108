package result

import (
	"encoding/json"
	"os"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// Record is a file of bench/results: what one measurement printed, and where and when that was.
type Record struct {
	// Kind is the measurement: the name of its directory.
	Kind string
	// Command is what to type to repeat it.
	Command string
	Machine rig.Machine
	// Data is what the measurement prints in JSON.
	Data json.RawMessage
}

// Write stores a record.
func (r *Record) Write(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Store writes a record of values that were measured on a machine.
func Store(file, kind, command string, machine rig.Machine, values any) error {
	data, err := json.Marshal(values)
	if err != nil {
		return err
	}
	machine.LoadAfter = rig.LoadAverage()
	return (&Record{kind, command, machine, data}).Write(file)
}

// ReadRecord reads a file that Write has written.
func ReadRecord(file string) (*Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	return r, json.Unmarshal(text, r)
}
