package device

// Exists tells whether the device is there. The error is a WrongKindError when another
// one has its name.
func (d *Device) Exists() (bool, error) {
	index, err := d.find()
	return index != 0, err
}
