(() => {
  /* What a link leads to is shown, whatever it is folded into. */
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  /* A link to where the reader has been already changes no address. */
  document.addEventListener("click", ({ target }) => target.closest('a[href^="#"]') && setTimeout(reveal));
  window.addEventListener("hashchange", reveal);
  reveal();
})();
