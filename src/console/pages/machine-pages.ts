// Machines, one machine, or the way to add one, by the segment behind `machines`.

import { html } from "../html.ts";
import { AddMachine } from "./add.ts";
import { Machine } from "./machine.ts";
import { Machines } from "./machines.ts";

export function MachinePages({ rest }: { rest: readonly string[] }) {
  const [first] = rest;
  if (first === undefined) return html`<${Machines} />`;
  return first === "add" ? html`<${AddMachine} />` : html`<${Machine} key=${first} id=${first} />`;
}
