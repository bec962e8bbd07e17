// Machines, or one of them, by the segment behind `machines`.

import "../core.ts";
import { html } from "../html.ts";
import { Machine } from "./machine.ts";
import { Machines } from "./machines.ts";

export function MachinePages({ rest: [id] }: { rest: readonly string[] }) {
  return id === undefined ? html`<${Machines} />` : html`<${Machine} key=${id} id=${id} />`;
}
