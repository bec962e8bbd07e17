// For the types of src/ that the contract uses: some files load a library late. No file of the bundle does.

declare const require: (path: string) => never;
