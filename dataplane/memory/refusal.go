package memory

import "fmt"

// refusal is an error in the words of iptables or of the kernel behind it, with
// their capitals and full stops.
type refusal string

// Error gives the words.
func (r refusal) Error() string { return string(r) }

func refusef(format string, args ...any) refusal {
	return refusal(fmt.Sprintf(format, args...))
}
