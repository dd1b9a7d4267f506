/* The interpreter of the single executable: finds its library beside itself, wherever it was unpacked. */
#include <Python.h>

int main(int count, char **arguments)
{
    return Py_BytesMain(count, arguments);
}
