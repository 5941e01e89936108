package memory

import (
	"strings"
)

// commentMatch is -m comment; it always holds.
type commentMatch struct{ text string }

// commentMax is XT_MAX_COMMENT_LEN of the kernel without the final NUL.
const commentMax = 255

func (m *commentMatch) option(p *parser, name string) (bool, error) {
	if name != "--comment" {
		return false, nil
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	if m.text != "" {
		return true, refusef("comment: option %q can be used only once", name)
	}
	if len(value) > commentMax {
		return true, refusef("comment: string too long")
	}
	m.text = value
	return true, nil
}

func (m *commentMatch) complete(*rule) error {
	if m.text == "" {
		return refusef(`comment: option "--comment" must be specified`)
	}
	return nil
}

func (m *commentMatch) holds(*walk) bool { return true }

func (m *commentMatch) print(b *strings.Builder) {
	write(b, false, "-m comment --comment", quote(m.text))
}
