// Asks the person at the terminal, a secret without showing it. Never used where input is not a terminal.

import { AppError } from "../errors.ts";
import type { System } from "../system.ts";

export type Question = { text: string; isSecret: boolean };

/**
 * What was typed to each question, without the line's end. All are asked in one go: the terminal shows nothing by itself
 * from before the first question on, so that what is pasted or typed ahead is neither seen nor lost. Throws interrupted on
 * Ctrl-C.
 */
export async function ask(
  questions: readonly Question[],
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<string[]> {
  if (!system.stdinIsTerminal) throw new AppError("usage", "There is no terminal to ask on");
  const { stdin } = process;
  stdin.setRawMode(true);
  const typed = characters(stdin);
  try {
    const answers: string[] = [];
    for (const { text, isSecret } of questions) {
      system.stderr.write(text);
      const echo = isSecret ? () => {} : system.stderr.write;
      answers.push(await readLine(typed, echo).finally(() => system.stderr.write("\n")));
    }
    return answers;
  } finally {
    stdin.setRawMode(false);
    // Ends the reading, which would keep the process alive.
    await typed.return(undefined);
  }
}

/** One secret; a new one is typed twice. */
export async function askSecret(
  text: string,
  isNew: boolean,
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<string> {
  const texts = isNew ? [text, "Again: "] : [text];
  const [first = "", again = first] = await ask(
    texts.map((each) => ({ text: each, isSecret: true })),
    system,
  );
  if (again !== first) throw new AppError("usage", "The two are not the same");
  return first;
}

async function* characters(stdin: typeof process.stdin): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  for await (const chunk of stdin) {
    yield* typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
  }
}

async function readLine(typed: AsyncGenerator<string, void>, echo: (text: string) => void): Promise<string> {
  let line: string[] = [];
  for (;;) {
    const { value: char, done } = await typed.next();
    if (done === true || char === "\r" || char === "\n") return line.join("");
    if (char === "\u0003" || char === "\u0004") throw new AppError("interrupted", "Interrupted");
    if (char === "\u007f" || char === "\b") {
      if (line.length > 0) echo("\b \b");
      line = line.slice(0, -1);
    } else {
      echo(char);
      line.push(char);
    }
  }
}
