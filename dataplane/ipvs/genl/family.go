package genl

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// familyName is what IPVS calls itself among the families of generic netlink. When
// it is asked for, the kernel loads the module by its alias, if it can.
const familyName = "IPVS"

// ErrUnavailable says that the kernel has no IPVS.
var ErrUnavailable = errors.New("the kernel has no IPVS: its module ip_vs is missing or cannot be loaded (modprobe ip_vs)")

// Available finds out whether the kernel has IPVS, which may load its module; the
// error matches ErrUnavailable when it has not.
func Available() error {
	s, err := Open()
	if err != nil {
		return err
	}
	return s.Close()
}

// lookUp finds the number of a family.
func (s *Socket) lookUp(name string) (uint16, error) {
	var family uint16
	attrs := wire.AppendText(nil, unix.CTRL_ATTR_FAMILY_NAME, name)
	q := question{kind: unix.GENL_ID_CTRL, command: unix.CTRL_CMD_GETFAMILY, flags: unix.NLM_F_ACK, attrs: attrs}
	err := s.ask(context.Background(), q, func(attrs []byte) {
		family = uint16At(wire.Find(attrs, unix.CTRL_ATTR_FAMILY_ID).Data)
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, ErrUnavailable
	case err != nil:
		return 0, fmt.Errorf("look for %s in the kernel: %w", name, err)
	case family == 0:
		return 0, fmt.Errorf("look for %s in the kernel: an answer without a number", name)
	}
	return family, nil
}
