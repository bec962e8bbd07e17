// A menu: a button that opens a list of actions below it. Escape, a click elsewhere, or an action closes it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { IconName } from "./drawings.ts";
import { Icon } from "./icon.tsx";

type MenuProps = {
  label: string;
  icon?: IconName;
  /** Words on the button instead of the icon alone. */
  words?: string;
  isSmall?: boolean | undefined;
  /** With a frame, as a button beside others. */
  isPlain?: boolean | undefined;
  /** Opens upwards, for a button at the bottom. */
  isUp?: boolean;
  children: ComponentChildren;
};

/** `children` are drawn only while the menu is open: a list may have hundreds of menus. */
export function Menu({ label, icon = "more", words, isSmall, isPlain, isUp = false, children }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const element = useRef<HTMLDetailsElement>(null);
  const focusButton = () => element.current?.querySelector("summary")?.focus();
  // A layout effect listens before the next key event, so that Escape closes the menu however early it is pressed.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    element.current?.querySelector(".menu-list")?.scrollIntoView({ block: "nearest" });
    const press = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      if (element.current?.contains(document.activeElement) === true) focusButton();
      setOpen(false);
    };
    const click = ({ target }: Event) => {
      if (!(target instanceof Node && element.current?.contains(target) === true)) setOpen(false);
    };
    document.addEventListener("click", click);
    document.addEventListener("keydown", press);
    return () => {
      document.removeEventListener("click", click);
      document.removeEventListener("keydown", press);
    };
  }, [isOpen]);
  // Links and buttons close the menu; fields in it keep it open.
  const isAction = ({ target }: Event) => target instanceof Element && target.closest("a, button") !== null;
  return (
    <details class={isUp ? "menu up" : "menu"} ref={element} open={isOpen}>
      <summary
        class={[
          "button",
          isPlain !== true && "ghost",
          isSmall === true && "small",
          words === undefined && "icon",
        ]
          .filter(Boolean)
          .join(" ")}
        aria-label={words === undefined ? label : undefined}
        title={label}
        onClick={(event: Event) => {
          event.preventDefault();
          setOpen(!isOpen);
        }}
      >
        <Icon name={icon} />
        {words}
      </summary>
      {isOpen ? (
        <div
          class="menu-list"
          // Before the action: a dialog that it opens gives the focus back to what has it now.
          onClickCapture={(event: Event) => void (isAction(event) && focusButton())}
          onClick={(event: Event) => void (isAction(event) && setOpen(false))}
        >
          {children}
        </div>
      ) : null}
    </details>
  );
}
