// Which IPv4 networks of organizations overlap. Pure. src/base/ip.ts does this for all networks, with a library that is too large
// for a page.

/** The addresses of a network as numbers, the end excluded; for other text NaN, which overlaps nothing. */
function rangeOf(text: string): readonly [from: number, to: number] {
  const [address = "", prefix] = text.split("/");
  const from = address.split(".").reduce((sum, part) => sum * 256 + Number(part || NaN), 0);
  const size = 2 ** (32 - Number(prefix || NaN));
  // A half-typed network has bits behind its prefix: 10.77.0.0/1.
  return from % size === 0 ? [from, from + size] : [NaN, NaN];
}

/** The first whose network overlaps the given one. */
export function overlapped<T extends { network: string }>(network: string, all: readonly T[]): T | undefined {
  const [from, to] = rangeOf(network);
  return all.find((each) => {
    const [first, end] = rangeOf(each.network);
    return from < end && first < to;
  });
}

/** A network to propose, which overlaps none of them; "" if each proposal does. */
export function freeNetwork(all: readonly { network: string }[]): string {
  const proposals = ["10.77", ...Array.from({ length: 64 }, (_, at) => `100.${64 + at}`)];
  return proposals.map((each) => `${each}.0.0/16`).find((each) => !overlapped(each, all)) ?? "";
}
