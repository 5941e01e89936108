package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The registers are 16 words, which rules name as 4 registers of 4 words or one
// by one.
const (
	wordBytes     = 4
	registerWords = 16
)

// registers are what the expressions of one rule hand to each other.
type registers struct {
	data    [registerWords * wordBytes]byte
	verdict verdict
}

// store writes a value; the rest of its last word becomes zero.
func (r *registers) store(at int, value []byte) {
	clear(r.data[at : at+padded(len(value))])
	copy(r.data[at:], value)
}

func (r *registers) storeUint32(at int, n uint32) { binary.NativeEndian.PutUint32(r.data[at:], n) }

func (r *registers) load(at, size int) []byte { return r.data[at : at+size] }

// registerAt gives the offset of a register in the data.
func registerAt(number uint32) (int, error) {
	switch {
	case number >= unix.NFT_REG_1 && number <= unix.NFT_REG_4:
		return int(number-unix.NFT_REG_1) * 4 * wordBytes, nil
	case number >= unix.NFT_REG32_00 && number <= unix.NFT_REG32_15:
		return int(number-unix.NFT_REG32_00) * wordBytes, nil
	case number == unix.NFT_REG_VERDICT:
		return 0, refusef(unix.EINVAL, "a value in the register of verdicts")
	default:
		return 0, refusef(unix.ERANGE, "register %d", number)
	}
}

// source gives the offset of a value that an expression reads.
func (p *exprParser) source(number uint32, size int) (int, error) {
	at, err := inside(number, size)
	if err != nil {
		return 0, err
	}
	for word := at / wordBytes; word*wordBytes < at+size; word++ {
		if !p.written[word] {
			return 0, refusef(unix.ENODATA, "register %d is read before it is written", number)
		}
	}
	return at, nil
}

// target gives the offset of a value that an expression writes.
func (p *exprParser) target(number uint32, size int) (int, error) {
	at, err := inside(number, size)
	if err != nil {
		return 0, err
	}
	for word := at / wordBytes; word*wordBytes < at+size; word++ {
		p.written[word] = true
	}
	return at, nil
}

// inside refuses what does not fit into the registers.
func inside(number uint32, size int) (int, error) {
	at, err := registerAt(number)
	switch {
	case err != nil:
		return 0, err
	case size == 0:
		return 0, refusef(unix.EINVAL, "a value of no bytes")
	case at+size > registerWords*wordBytes:
		return 0, refusef(unix.ERANGE, "%d bytes in register %d", size, number)
	}
	return at, nil
}
