// One caller after the other, each in a round of the event loop of its own: what is waiting besides them, such as check-ins,
// is answered in between.

import { nextRound } from "./heavy-work.ts";

export function makeRounds(pause: () => Promise<unknown> = nextRound): () => Promise<unknown> {
  let last: Promise<unknown> = Promise.resolve();
  return () => (last = last.then(pause));
}
