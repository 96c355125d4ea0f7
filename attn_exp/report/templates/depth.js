// Switch between all numbers and those of the reading view. The page remembers the choice as long as it is open.
{
  const button = document.getElementById("depth");
  const page = document.documentElement;
  if (button) {
    button.closest("p").hidden = false;
    button.addEventListener("click", () => {
      const reading = page.dataset.depth !== "reading";
      page.dataset.depth = reading ? "reading" : "all";
      button.setAttribute("aria-pressed", String(reading));
      document.dispatchEvent(new Event("depth"));
    });
  }
}
