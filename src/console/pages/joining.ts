// Pages by which machines come: one file of all takes fewer bytes than one for each.

export { AddMachine } from "./add.ts";
export { Phones } from "./phones.ts";
export { Waiting } from "./waiting.ts";
