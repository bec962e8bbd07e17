// Machines, those that wait for approval, one machine, or the way to add one, by the segment behind `machines`.

import "../core.ts";
import { html } from "../html.ts";
import { AddMachine } from "./add.ts";
import { Machine } from "./machine.ts";
import { Machines } from "./machines.ts";
import { Waiting } from "./waiting.ts";

export function MachinePages({ rest }: { rest: readonly string[] }) {
  const [first] = rest;
  if (first === undefined) return html`<${Machines} />`;
  if (first === "waiting") return html`<${Waiting} />`;
  return first === "add" ? html`<${AddMachine} />` : html`<${Machine} key=${first} id=${first} />`;
}
