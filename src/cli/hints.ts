// Command lines of ours in sentences for people: each gets the places in use, because without them it would work on
// another configuration root or other data. All sentences pass here, so no hint repeats the flags.

import { brand } from "../brand.ts";
import { quoteWord } from "../plan.ts";
import { dataFlagsOf } from "./server-flags.ts";
import type { Values } from "./values.ts";

/** Commands that neither read the configuration root nor the data of a control plane. */
const elsewhere = [
  "login",
  "logout",
  "whoami",
  "help",
  "version",
  "demo",
  "completion",
  "self-update",
  "setup",
  "check-port",
];
const onData = ["admin", "serve"];

/** What adds the places of this command line to the commands in a sentence, which stand in backticks. */
export function placesOf(values: Values): (sentence: string) => string {
  const root = values.text("config-root");
  const node = root === undefined ? "" : ` --config-root ${quoteWord(root)}`;
  const data = dataFlagsOf(values);
  if (node === "" && data === "") return (sentence) => sentence;
  const line = new RegExp(`\`((?:sudo )?${brand.executable} ([a-z-]+)[^\`]*)\``, "g");
  return (sentence) =>
    sentence.replace(line, (whole, command: string, name: string) => {
      if (
        elsewhere.includes(name) ||
        /--(help|config-root|data-dir|database-url|api-base|local)\b/.test(command)
      )
        return whole;
      return `\`${insert(command, onData.includes(name) ? data : node)}\``;
    });
}

/** Before what a person is to fill in. */
const insert = (command: string, flags: string) =>
  command.endsWith(" …") ? `${command.slice(0, -2)}${flags} …` : `${command}${flags}`;
