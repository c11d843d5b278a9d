/* A program that does nothing but be linked with a library. */
extern int anchor(void);

int main(void) {
  return anchor();
}
