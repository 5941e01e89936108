// Package hostile holds tests with input that no well-meaning user writes: names that would
// end a quotation or a line of a rule, and objects of any size. They use the real reduction,
// selection and renderers of every mode. Fuzz targets of a single parser are beside it.
package hostile
