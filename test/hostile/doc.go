// SPDX-License-Identifier: Apache-2.0

// Package hostile holds tests with input that no well-meaning user writes: names that would
// end a quotation or a line of a rule, and objects of any size. They use the real reduction,
// selection and renderers of every mode, and the program on the real kernel. Fuzz targets of a
// single parser are next to that parser.
package hostile
