// Asks the person at the terminal, a secret without showing it. Never used where input is not a terminal.

import { AppError } from "../errors.ts";
import type { System } from "../system.ts";

type Terminal = Pick<System, "stderr" | "stdinIsTerminal">;

/** What was typed, without the line's end. Throws interrupted on Ctrl-C. */
export function askSecret(question: string, system: Terminal): Promise<string> {
  return askFor(question, system, () => {});
}

/** The same, shown as it is typed. */
export function ask(question: string, system: Terminal): Promise<string> {
  return askFor(question, system, (text) => system.stderr.write(text));
}

async function askFor(question: string, system: Terminal, echo: (text: string) => void): Promise<string> {
  if (!system.stdinIsTerminal) throw new AppError("usage", "There is no terminal to ask on");
  system.stderr.write(question);
  const { stdin } = process;
  stdin.setRawMode(true);
  try {
    return await readLine(stdin, echo);
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    system.stderr.write("\n");
  }
}

async function readLine(stdin: typeof process.stdin, echo: (text: string) => void): Promise<string> {
  let typed = "";
  for await (const chunk of stdin) {
    for (const char of String(chunk)) {
      if (char === "\r" || char === "\n") return typed;
      if (char === "\u0003" || char === "\u0004") throw new AppError("interrupted", "Interrupted");
      echo(char === "\u007f" || char === "\b" ? "\b \b" : char);
      typed = char === "\u007f" || char === "\b" ? typed.slice(0, -1) : typed + char;
    }
  }
  return typed;
}
