// A page in sections, with the list of them beside it. The one in sight is marked.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Count } from "./tag.tsx";

/** Of the panel of a section. */
export const idOf = (section: string) => section.toLowerCase().replaceAll(" ", "-");

/** A section that begins above it is in sight. */
const topPx = 140;

type SectionsProps = {
  all: readonly string[];
  /** How much of a section is changed and not saved. */
  changed?(section: string): number;
  children: ComponentChildren;
};

/** Links to the sections of a page; the one in sight is marked. */
export function Sections({ all, changed, children }: SectionsProps) {
  const [current, setCurrent] = useState(all[0]);
  useEffect(() => {
    const look = () => {
      const isAbove = (section: string) =>
        (document.getElementById(idOf(section))?.getBoundingClientRect().top ?? Infinity) < topPx;
      const isAtEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
      setCurrent(isAtEnd ? all.at(-1) : (all.findLast(isAbove) ?? all[0]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, [all.join()]);
  // The browser looked for it before the page had been read.
  useEffect(() => document.getElementById(location.hash.slice(1))?.scrollIntoView(), []);
  return (
    <div class="settings">
      <nav class="toc" aria-label="Sections">
        {all.map((section) => {
          const count = changed?.(section) ?? 0;
          return (
            <a
              key={section}
              href={`#${idOf(section)}`}
              aria-current={section === current ? "true" : undefined}
            >
              {section}
              {count === 0 ? null : <Count count={count} words="changed" isSoft={true} />}
            </a>
          );
        })}
      </nav>
      <div class="stackd">{children}</div>
    </div>
  );
}
