// Long loops run a tenth in the ordinary checks and whole with SOAK=1, which files below test/soak/ set before they
// load the same tests.

export const inFull: boolean = process.env["SOAK"] === "1";
