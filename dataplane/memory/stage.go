package memory

import (
	"slices"
	"strings"
)

// stage holds the changes to one table between its line "*TABLE" and COMMIT.
// Nothing reaches the table before commit; a stage that is dropped leaves no
// trace. Its errors are in the words of the tools.
type stage struct {
	dialect
	kernel *Kernel
	base   *table
	// changed holds the chains touched so far, nil for a removed one.
	changed map[string]*chain
	// callers is by how much the number of jumps to a chain has changed.
	callers map[string]int
}

func newStage(k *Kernel, base *table) *stage {
	return &stage{
		dialect: dialect{family: k.family, table: base.name},
		kernel:  k,
		base:    base,
		changed: make(map[string]*chain),
		callers: make(map[string]int),
	}
}

// errNoChain is in the tools' words for a chain that is not there.
var errNoChain = refusal("No chain/target/match by that name.")

// chainNameMax is XT_EXTENSION_MAXNAMELEN of the kernel without the final NUL.
const chainNameMax = 28

// chain gives a chain as the stage sees it, nil when it does not exist.
func (s *stage) chain(name string) *chain {
	if c, touched := s.changed[name]; touched {
		return c
	}
	return s.base.chains[name]
}

// writable gives a chain that may be changed.
func (s *stage) writable(name string) (*chain, error) {
	c := s.chain(name)
	if c == nil {
		return nil, errNoChain
	}
	if c == s.base.chains[name] {
		c = c.clone()
		s.changed[name] = c
	}
	return c, nil
}

// declare creates a chain, or empties it when it exists, which is what a line
// ":CHAIN - [0:0]" means with --noflush. Of a built-in chain only the policy
// changes.
func (s *stage) declare(name, policy string) error {
	if s.base.isBuiltin(name) {
		return s.setPolicy(name, policy)
	}
	switch {
	case len(name) > chainNameMax:
		return refusef("Invalid chain name `%s' (%d chars max)", name, chainNameMax)
	case name == "" || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "!"):
		return refusef("chain name not allowed to start with `-' or `!'")
	case reserved[name]:
		return refusef("chain name may not clash with target name")
	}
	if s.chain(name) == nil {
		s.changed[name] = &chain{name: name}
		return nil
	}
	return s.flush(name)
}

func (s *stage) setPolicy(name, policy string) error {
	switch policy {
	case "-":
		return nil
	case "ACCEPT", "DROP":
		c, err := s.writable(name)
		if err == nil {
			c.policy = policy
		}
		return err
	default:
		return refusef("Bad policy name `%s'", policy)
	}
}

// insert puts a rule at an index of a chain; -1 is the end.
func (s *stage) insert(name string, at int, r *rule) error {
	c, err := s.writable(name)
	if err != nil {
		return err
	}
	if to := r.jump(); to != "" {
		if s.base.isBuiltin(to) || s.chain(to) == nil {
			return refusef("Couldn't load target `%s':No such file or directory", to)
		}
		s.callers[to]++
	}
	if at < 0 {
		at = len(c.rules)
	}
	if at > len(c.rules) {
		return refusal("Index of insertion too big.")
	}
	c.rules = slices.Insert(c.rules, at, r)
	return nil
}

// delete removes the first rule of that text.
func (s *stage) delete(name string, r *rule) error {
	c, err := s.writable(name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(c.rules, func(other *rule) bool { return other.text == r.text })
	if at < 0 {
		return refusal("Bad rule (does a matching rule exist in that chain?).")
	}
	return s.deleteAt(name, at)
}

// deleteAt removes the rule at an index.
func (s *stage) deleteAt(name string, at int) error {
	c, err := s.writable(name)
	if err != nil {
		return err
	}
	if at < 0 || at >= len(c.rules) {
		return refusal("Index of deletion too big.")
	}
	if to := c.rules[at].jump(); to != "" {
		s.callers[to]--
	}
	c.rules = slices.Delete(c.rules, at, at+1)
	return nil
}

// flush removes all rules of a chain.
func (s *stage) flush(name string) error {
	c, err := s.writable(name)
	if err != nil {
		return err
	}
	for _, r := range c.rules {
		if to := r.jump(); to != "" {
			s.callers[to]--
		}
	}
	c.rules = nil
	return nil
}

// remove deletes a chain, which must be empty and not jumped to.
func (s *stage) remove(name string) error {
	c := s.chain(name)
	if c == nil || s.base.isBuiltin(name) {
		return errNoChain
	}
	if len(c.rules) > 0 {
		return refusal("Directory not empty.")
	}
	callers := s.callers[name]
	for _, n := range s.base.callers[name] {
		callers += n
	}
	if callers > 0 {
		return refusal("Too many links.")
	}
	s.changed[name] = nil
	return nil
}

// commit brings the changes into the table, or refuses all of them.
func (s *stage) commit() error {
	if err := s.verify(); err != nil {
		return err
	}
	for name, c := range s.changed {
		s.kernel.named(s.base.chains[name], -1)
		s.base.put(name, c)
		s.kernel.named(c, 1)
	}
	s.kernel.forget()
	return nil
}
